package wire

// Egress is process 1's forwarding configuration: connections to the proxy's address, and to the address of
// each host, go through a socket to the gateway.
type Egress struct {
	Socket string `json:"socket"`
	// Proxy is the loopback address in the proxy variables.
	Proxy string `json:"proxy"`
	// Hosts are addresses for outside hosts, so that programs without proxy support can reach them too.
	Hosts []EgressHost `json:"hosts,omitempty"`
}

// EgressHost is one outside host on one port.
type EgressHost struct {
	// Address is its address in the sandbox, such as 127.1.0.1:443; the hosts file contains it too.
	Address string `json:"address"`
	// Target is the outside host and port, such as github.com:443.
	Target string `json:"target"`
}
