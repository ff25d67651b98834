// bench/side.py in JavaScript: plays a plan, notes hand-overs, and speaks the same few words with the bench.
import { appendFileSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

const FLUSH_MS = 200;

export const nowMs = () => performance.timeOrigin + performance.now();

export function connectionTo(url) {
  const { hostname, port } = new URL(url);
  return { host: hostname, port: Number(port) };
}

export const readPlan = (file) => JSON.parse(readFileSync(file, 'utf8'));

export async function runClient(plan, out, send) {
  const commands = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  console.log('ready');
  await commands.next();
  write(out, await play(plan, send));
  console.log('done');
  while (!(await commands.next()).done);
}

export async function runWorker(notes, out) {
  const flush = () => write(out, notes.splice(0));
  const flushing = setInterval(flush, FLUSH_MS);
  console.log('ready');
  for await (const _ of createInterface({ input: process.stdin }));
  clearInterval(flushing);
  flush();
}

async function play(plan, send) {
  const sent = [];
  const began = performance.now();
  const elapsed = () => performance.now() - began;
  const until = async (at) => {
    if (at > elapsed()) await sleep(at - elapsed());
  };

  async function person({ conversation, start_ms, offsets_ms }) {
    const start = Math.max(elapsed(), start_ms);
    await until(start);
    if (elapsed() > plan.limit_ms) return;
    for (const [number, offset] of offsets_ms.entries()) {
      await until(start + offset);
      sent.push([conversation, number, ...(await send(conversation, number))]);
    }
  }

  async function people(bursts) {
    for (const burst of bursts) await person(burst);
  }

  const bursts = plan.bursts.values();
  await Promise.all(
    plan.people ? Array.from({ length: plan.people }, () => people(bursts)) : plan.bursts.map(person),
  );
  return sent;
}

function write(out, lines) {
  if (lines.length) appendFileSync(out, lines.map((line) => JSON.stringify(line) + '\n').join(''));
}
