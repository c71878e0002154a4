# By agent and environment. The resource takes over the lease together with its owner.
terraform import 'sandbox_lease.hero["did:plc:kira"]' 'did:plc:kira::dungeon-3'
