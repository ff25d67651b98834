"""The small bugs that can be planted in a Python file.

How this works: the syntax tree says where each part of the source stands, and the bug is a replacement of those bytes,
so that everything else in the file stays as it was written. Left out is what no test should notice: docstrings, type
annotations, assertions, what is logged, and tuning numbers (constants in capitals), whose size benches judge.
"""

import ast
import re
from collections.abc import Iterable, Iterator

from mutants.mutant import Mutant

COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
LOGGING = re.compile(r"(await )?(self\.)?_?log\.")


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Every bug for this file, in the order of the source."""
    tree = ast.parse(source)
    found = set(_Finder(path, source).visit(tree))
    return sorted(found, key=lambda mutant: (mutant.start, mutant.end, mutant.after))


class _Finder:
    def __init__(self, path: str, source: bytes) -> None:
        self._path = path
        self._source = source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def visit(self, node: ast.AST) -> Iterator[Mutant]:
        if _is_left_out(node) or (isinstance(node, ast.Expr) and LOGGING.match(self._text(node))):
            return
        yield from self._of(node)
        for child in _children(node):
            yield from self.visit(child)

    def _of(self, node: ast.AST) -> Iterable[Mutant]:
        match node:
            case ast.Compare():
                parts = [node.left, *node.comparators]
                operators = (COMPARISONS[type(operator)] for operator in node.ops)
                return self._operators(parts, operators)
            case ast.BoolOp():
                words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                return self._operators(node.values, [words] * (len(node.values) - 1))
            case ast.BinOp() if type(node.op) in ARITHMETIC and not _is_text(node.left) and not _is_text(node.right):
                return self._operators([node.left, node.right], [ARITHMETIC[type(node.op)]])
            case ast.If() | ast.IfExp() | ast.While() if not isinstance(node.test, ast.Constant):
                return [self._replaced(node.test, word) for word in ("True", "False")]
            case ast.Return() if node.value is not None and not _is_none(node.value):
                return [self._replaced(node, "return None")]
            case _:
                return [*self._of_part(node), *self._of_statement(node)]

    def _of_part(self, node: ast.AST) -> Iterable[Mutant]:
        match node:
            case ast.UnaryOp(op=ast.Not()):
                return [self._replaced(node, self._text(node.operand))]
            case ast.Constant(value=bool(value)):
                return [self._replaced(node, str(not value))]
            case ast.Constant(value=int(value)):
                return [self._replaced(node, str(value + 1))]
            case ast.Name() if node.id in NAMES:
                return [self._replaced(node, NAMES[node.id])]
            case _:
                return ()

    def _of_statement(self, node: ast.AST) -> Iterable[Mutant]:
        match node:
            case ast.Expr(value=ast.Call() | ast.Await()):
                return [self._replaced(node, "pass")]
            case ast.AugAssign() if isinstance(node.op, ast.Add | ast.Sub):
                words = ("+=", "-=") if isinstance(node.op, ast.Add) else ("-=", "+=")
                return self._operators([node.target, node.value], [words])
            case ast.Break():
                return [self._replaced(node, "continue")]
            case ast.Continue():
                return [self._replaced(node, "break")]
            case _:
                return ()

    def _operators(self, parts: list[ast.expr], words: Iterable[tuple[str, str]]) -> Iterator[Mutant]:
        """An operator stands between its two parts, perhaps with parentheses or a comment."""
        for left, right, (before, after) in zip(parts, parts[1:], words, strict=False):
            between = self._source[self._end(left) : self._start(right)]
            if place := re.search(_pattern(before), between):
                start = self._end(left) + place.start()
                yield self._mutant(start, start + len(place[0]), after)

    def _replaced(self, node: ast.stmt | ast.expr, after: str) -> Mutant:
        return self._mutant(self._start(node), self._end(node), after)

    def _mutant(self, start: int, end: int, after: str) -> Mutant:
        before = self._source[start:end].decode()
        return Mutant(self._path, start, end, before, after, self._source.count(b"\n", 0, start) + 1)

    def _text(self, node: ast.stmt | ast.expr) -> str:
        return self._source[self._start(node) : self._end(node)].decode()

    def _start(self, node: ast.stmt | ast.expr) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.stmt | ast.expr) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset


def _pattern(operator: str) -> bytes:
    """One in words stands alone, and its words may be on two lines."""
    words = r"\s+".join(operator.split())
    return (rf"\b{words}\b" if operator[0].isalpha() else re.escape(operator)).encode()


def _is_left_out(node: ast.AST) -> bool:
    match node:
        case ast.Assert() | ast.Import() | ast.ImportFrom() | ast.JoinedStr():
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name.isupper() or name == "__slots__"
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """All but annotations, decorators, and how a class is made."""
    is_class = isinstance(node, ast.ClassDef)
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list") and not (is_class and name == "keywords"):
            yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST))


def _is_text(node: ast.expr) -> bool:
    """What is put together and not counted."""
    is_string = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    return is_string or isinstance(node, ast.JoinedStr | ast.Tuple | ast.List)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
