// Calls the Docker Engine that runs the containers of local Workers. Removes the containers that workerd leaves behind,
// and the images that it commits as their snapshots.

import { request } from "node:http";
import { createInterface } from "node:readline";

export class Engine {
  #socket;
  #commits = []; // {name of the container, image}, oldest first
  #events;

  constructor(host) {
    this.#socket = host.replace(/^unix:\/\//, "");
  }

  // watch follows commits until close.
  async watch() {
    const filters = encodeURIComponent(JSON.stringify({ type: ["container"], event: ["commit"] }));
    const { promise, resolve, reject } = Promise.withResolvers();
    this.#events = request({ socketPath: this.#socket, path: `/events?filters=${filters}` }, (answer) => {
      const lines = createInterface({ input: answer });
      lines.on("error", () => undefined); // close ends it
      lines.on("line", (line) => {
        const { name, imageID } = JSON.parse(line).Actor.Attributes;
        this.#commits.push({ name, image: imageID });
      });
      resolve();
    });
    this.#events.on("error", reject);
    this.#events.end();
    await promise;
  }

  close() {
    this.#events?.destroy();
  }

  // remove deletes the containers of a Worker and their snapshots. It starts with the newest snapshot, because an older
  // one may be its base.
  async remove(worker) {
    const prefix = `workerd-${worker}-`;
    const filters = encodeURIComponent(JSON.stringify({ name: [`^/${prefix}`] }));
    for (const { Id } of await this.#call("GET", `/containers/json?all=true&filters=${filters}`)) {
      await this.#call("DELETE", `/containers/${Id}?force=true`, 404, 409); // gone, or being removed
    }
    for (const { image } of this.#commits.filter(({ name }) => name.startsWith(prefix)).reverse()) {
      await this.#call("DELETE", `/images/${image}?force=true`, 404);
    }
    this.#commits = this.#commits.filter(({ name }) => !name.startsWith(prefix));
  }

  // call fails if the engine answers with an error, unless accepted has its status.
  #call(method, path, ...accepted) {
    return new Promise((resolve, reject) => {
      const call = request({ socketPath: this.#socket, method, path, timeout: 60_000 }, (answer) => {
        let body = "";
        answer.setEncoding("utf8");
        answer.on("data", (part) => (body += part));
        answer.on("error", reject);
        answer.on("end", () => {
          const failed = answer.statusCode >= 300;
          const why = `${method} ${path}: the engine answers ${answer.statusCode}: ${body}`;
          if (failed && !accepted.includes(answer.statusCode)) reject(new Error(why));
          else resolve(body === "" || failed ? null : JSON.parse(body));
        });
      });
      call.on("timeout", () => call.destroy(new Error(`${method} ${path}: the engine did not answer within 60 s`)));
      call.on("error", reject);
      call.end();
    });
  }
}
