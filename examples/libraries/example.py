import sandbox_lease as sandbox

with sandbox.lease("did:plc:ada", environment="catan-7") as s:
    s.run("for n in 1 2 3; do echo move $n; sleep 1; done", on_stdout=print)
