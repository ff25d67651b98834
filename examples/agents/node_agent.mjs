// node node_agent.mjs   (Node 18 or later, nothing to install)
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const key = Buffer.from(process.env.TURNTAKE_AGENT_SECRET.replace("whsec_", ""), "base64");

function isFromTurntake(headers, body) {
  const seconds = Number(headers["webhook-timestamp"]);
  if (!(Math.abs(Date.now() / 1000 - seconds) < 300)) return false;
  const signed = Buffer.concat([Buffer.from(`${headers["webhook-id"]}.${headers["webhook-timestamp"]}.`), body]);
  const expected = Buffer.from("v1," + createHmac("sha256", key).update(signed).digest("base64"));
  const given = (headers["webhook-signature"] ?? "").split(" ").map((each) => Buffer.from(each));
  return given.some((each) => each.length === expected.length && timingSafeEqual(each, expected));
}

createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  if (!isFromTurntake(request.headers, body)) return response.writeHead(401).end();
  const turn = JSON.parse(body).data;
  response.writeHead(200, { "content-type": "application/json" });
  response.end(JSON.stringify({ reply: `You sent ${turn.messageCount} messages: ${JSON.stringify(turn.text)}` }));
}).listen(Number(process.env.PORT ?? 9000), "127.0.0.1");
