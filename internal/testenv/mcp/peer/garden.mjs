// A garden: tools, resources, a template and a prompt, for either major version of the
// SDK. The versions differ in how a device sends notifications, so these are parameters.
import { z } from "zod";

// A PNG of one pixel.
const picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

// The state is shared by all sessions and requests.
export const garden = { watered: 0, resting: 0, roof: "closed", mower: false };
export const state = "garden://state";

const beds = { north: 12.5, south: 19.25 };
const bed = z.enum(["north", "south"]);

// plant declares everything that asks no question. It calls progress to report progress,
// updated when the state has changed, bought when there is a new tool, and cancelled for
// the abort signal of a request.
export function plant(server, { ResourceTemplate, completable, args }, { progress, updated, bought, cancelled }) {
  server.registerTool("measure", {
    title: "Measure a bed", description: "Tell how warm and how wet a bed is",
    inputSchema: z.object({ bed }),
    outputSchema: z.object({ bed, celsius: z.number(), wet: z.boolean() }),
    annotations: { readOnlyHint: true },
  }, ({ bed }) => {
    const measured = { bed, celsius: beds[bed], wet: garden.watered > 0 };
    return { structuredContent: measured, content: [{ type: "text", text: JSON.stringify(measured) }] };
  });
  server.registerTool("photo", {
    description: "Take a picture", inputSchema: z.object({}), annotations: { readOnlyHint: true },
  }, () => ({
    content: [
      { type: "text", text: "The garden, from above." },
      { type: "image", data: picture, mimeType: "image/png", annotations: { audience: ["user"], priority: 0.5 } },
      { type: "resource_link", uri: state, name: "state" },
    ],
  }));
  server.registerTool("water", {
    description: "Water the garden, litre by litre", inputSchema: z.object({ litres: z.number().int().min(1).max(20) }),
  }, async ({ litres }, ctx) => {
    for (let i = 1; i <= litres; i++) await progress(ctx, i, litres, `litre ${i}`);
    garden.watered += litres;
    await updated(state);
    return { content: [{ type: "text", text: `${litres} litres` }] };
  });
  server.registerTool("rest", { description: "Do nothing until the call is cancelled", inputSchema: z.object({}) }, async (_, ctx) => {
    garden.resting++;
    await progress(ctx, 1, 2, "resting");
    await new Promise((wake) => cancelled(ctx).addEventListener("abort", wake));
    garden.resting--;
    return { content: [{ type: "text", text: "rested" }] };
  });
  server.registerTool("buy", { description: "Buy a mower, which can be used from then on", inputSchema: z.object({}) }, async () => {
    garden.mower = true;
    await bought();
    return { content: [{ type: "text", text: "bought" }] };
  });
  if (garden.mower) mow(server);
  server.registerTool("prune", { description: "Prune a tree", inputSchema: z.object({ tree: z.string() }) }, ({ tree }) => ({
    isError: true, content: [{ type: "text", text: `there is no ${tree}` }],
  }));
  server.registerResource("state", state, { title: "State", mimeType: "application/json", description: "How the garden is" },
    (uri) => ({ contents: [{ uri: uri.href, mimeType: "application/json", text: JSON.stringify(garden) }] }));
  server.registerResource("plan", "garden://plan", { mimeType: "image/png" },
    (uri) => ({ contents: [{ uri: uri.href, mimeType: "image/png", blob: picture }] }));
  server.registerResource("bed", new ResourceTemplate("garden://beds/{bed}", {
    list: undefined, complete: { bed: (begun) => Object.keys(beds).filter((name) => name.startsWith(begun)) },
  }), { mimeType: "text/plain" }, (uri, { bed }) => ({ contents: [{ uri: uri.href, mimeType: "text/plain", text: `${bed}: ${beds[bed]} °C` }] }));
  server.registerPrompt("advice", {
    description: "Ask what to do about a plant",
    argsSchema: args({
      plant: completable(z.string(), (begun) => ["tomato", "tulip", "rose"].filter((name) => name.startsWith(begun))),
      season: z.string().optional(),
    }),
  }, ({ plant, season }) => ({
    description: "Advice",
    messages: [{ role: "user", content: { type: "text", text: `What does a ${plant} need in ${season ?? "any season"}?` } }],
  }));
}

// mow declares the tool of the mower.
export function mow(server) {
  server.registerTool("mow", { description: "Mow the grass", inputSchema: z.object({}) }, () => ({ content: [{ type: "text", text: "mowed" }] }));
}

// The question of open_roof, and the result for an answer.
export const question = {
  message: "Open the roof?",
  requestedSchema: {
    type: "object", required: ["minutes"],
    properties: { minutes: { type: "integer", title: "For how many minutes", minimum: 1, maximum: 60 }, why: { type: "string" } },
  },
};

export function opened(answer) {
  if (answer.action !== "accept") return { isError: true, content: [{ type: "text", text: `the roof stays closed: ${answer.action}` }] };
  garden.roof = `open for ${answer.content.minutes} minutes`;
  return { content: [{ type: "text", text: `${garden.roof}, because ${answer.content.why}` }] };
}

export const roof = { description: "Open the roof, if a person agrees", inputSchema: z.object({}) };

// listen serves on a free port, prints its URL, and exits when standard input ends.
export function listen(server) {
  server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
  process.stdin.on("end", () => process.exit(0)).resume();
}
