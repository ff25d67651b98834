// A no-op handler behind a BullMQ worker, with as many jobs at a time as our worker takes.
import { Worker } from 'bullmq';
import { connectionTo, nowMs, runWorker } from './side.mjs';

const CONCURRENCY = 100;
const [url, , out] = process.argv.slice(2);
const notes = [];
const worker = new Worker(
  'turns',
  async (job) => {
    notes.push([job.data.conversation, [job.data.number], nowMs(), job.timestamp + job.opts.delay]);
  },
  { connection: { ...connectionTo(url), maxRetriesPerRequest: null }, concurrency: CONCURRENCY },
);
await worker.waitUntilReady();
await runWorker(notes, out);
await worker.close();
