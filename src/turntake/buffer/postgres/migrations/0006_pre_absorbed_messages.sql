-- A turn may absorb messages while it is answered, so its last one may be a later one when it closes than when it was
-- opened. All else of swap_1 stays as it is. Releases before this one call it too, and always say the tail that there is.
DO $do$
BEGIN
    EXECUTE replace(
        pg_get_functiondef('swap_1'::regproc),
        'SET closed_at = excluded.closed_at, letter_at',
        'SET tail = excluded.tail, closed_at = excluded.closed_at, letter_at'
    );
END
$do$;
