// A session in the World `hello`: install something, write a file, leave. The next session finds both.
//   kubectl apply -f examples/runtime-docker.yaml -f examples/world.yaml
//   npx node examples/session.ts
import { AgentWorlds } from "@agentworlds/sdk";

await using worlds = new AgentWorlds();
await worlds.worlds.waitReady("hello", { namespace: "default" });

await using session = await worlds.sandboxes.create({
  world: "hello",
  namespace: "default",
  ttlSeconds: 600,
  agent: { id: "example", conversation: "readme" },
  onProgress: ({ reason, message }) => console.error(`waiting: ${reason}: ${message}`),
});

await session.writeFile("/usr/local/bin/greet", "#!/bin/sh\necho hello from $(hostname)\n", { mode: 0o755 });
const greeting = await session.exec("greet | tee -a /root/greetings");
console.log(greeting.exitCode, greeting.stdout.trim());
console.log(await session.readTextFile("/root/greetings"));

await session.touch({ ttlSeconds: 1_200 });
const { version, digest } = await session.snapshot({ description: "greet is installed" });
console.log(`version ${version}: ${digest}`);
// Leaving closes the session: what changed since the snapshot becomes the next version.
