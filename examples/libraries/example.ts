import { lease } from "@sandbox-lease/sdk";

await using s = await lease("did:plc:ada", { environment: "catan-7" });
await s.run("for n in 1 2 3; do echo move $n; sleep 1; done", { onStdout: console.log });
