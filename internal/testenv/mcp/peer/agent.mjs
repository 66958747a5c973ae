// An agent made with version 1 of the SDK. It makes requests that end with JSON-RPC errors,
// and then prints, as JSON, how often it opened a stream and what it was notified of.
//
//   node agent.mjs URL '{"tools":[...],"resources":[...],"watch":"URI","touch":"TOOL"}' SECONDS
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ResourceUpdatedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const [url, plan, seconds] = process.argv.slice(2);
const { tools, resources, watch, touch } = JSON.parse(plan);
const sleep = (s) => new Promise((wake) => setTimeout(wake, s * 1000));

const seen = { streams: 0, updates: 0, codes: [] };
const client = new Client({ name: "agent", version: "1.0.0" });
client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => { if (params.uri === watch) seen.updates++; });
await client.connect(new StreamableHTTPClientTransport(new URL(url), {
  fetch: (to, init) => {
    if ((init?.method ?? "GET") === "GET") seen.streams++;
    return fetch(to, init);
  },
}));
await client.subscribeResource({ uri: watch });
for (const name of tools) await client.callTool({ name, arguments: {} }).catch((e) => seen.codes.push(e.code));
for (const uri of resources) await client.readResource({ uri }).catch((e) => seen.codes.push(e.code));
for (let i = 0; i < 3; i++) {
  await sleep(seconds / 4);
  await client.callTool({ name: touch, arguments: {} });
}
await sleep(seconds / 4);
console.log(JSON.stringify(seen));
await client.close();
