// Debounce as the BullMQ guide has it: a delayed job that each further message replaces.
import { Queue } from 'bullmq';
import { connectionTo, nowMs, readPlan, runClient } from './side.mjs';

const [url, planFile, out] = process.argv.slice(2);
const plan = readPlan(planFile);
const queue = new Queue('turns', { connection: connectionTo(url) });
await queue.waitUntilReady();

async function send(conversation, number) {
  const sentAt = nowMs();
  await queue.add(
    'turn',
    { conversation, number, text: plan.text },
    {
      delay: plan.silence_ms,
      deduplication: { id: conversation, ttl: plan.silence_ms, extend: true, replace: true },
      removeOnComplete: true,
    },
  );
  return [sentAt, nowMs()];
}

await runClient(plan, out, send);
await queue.close();
