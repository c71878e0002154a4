// A Worker that does nothing but what ours cannot do without: it starts a container, runs a command in it, and
// destroys it. BenchmarkAgainstBare measures ours against it.
import { DurableObject } from "cloudflare:workers";

export class Sandbox extends DurableObject {
  async fetch(request) {
    const container = this.ctx.container;
    switch (new URL(request.url).pathname) {
      case "/start":
        container.start({ entrypoint: ["/bin/sleep", "600"], enableInternet: false });
        return this.run(["/bin/true"]);
      case "/exec":
        return this.run(["/bin/echo", "hello"]);
      default:
        await container.destroy();
        return new Response();
    }
  }

  async run(command) {
    const process = await this.ctx.container.exec(command);
    const { stdout, exitCode } = await process.output();
    return new Response(stdout, { status: exitCode === 0 ? 200 : 500 });
  }
}

export default {
  fetch(request, env) {
    return env.SANDBOX.get(env.SANDBOX.idFromName(new URL(request.url).searchParams.get("id"))).fetch(request);
  },
};
