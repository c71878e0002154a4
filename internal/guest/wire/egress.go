package wire

// Egress tells process 1 how its sandbox gets out: what comes to the proxy's address, and to the
// address of each host, is moved through a socket to the gateway.
type Egress struct {
	Socket string `json:"socket"`
	// Proxy is the address, on loopback, that the proxy variables name.
	Proxy string `json:"proxy"`
	// Hosts stand for hosts outside, so that programs which know no proxy reach them too.
	Hosts []EgressHost `json:"hosts,omitempty"`
}

// EgressHost is one host outside, on one port.
type EgressHost struct {
	// Address is where it is reached inside, such as 127.1.0.1:443; the hosts file says so too.
	Address string `json:"address"`
	// Target is what it stands for, such as github.com:443.
	Target string `json:"target"`
}
