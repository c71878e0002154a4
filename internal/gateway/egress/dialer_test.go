package egress_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// names is a DNS whose answers can change with each question.
type names func(network, host string) ([]netip.Addr, error)

func (n names) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	return n(network, host)
}

func always(addrs ...string) names {
	return func(network, _ string) ([]netip.Addr, error) {
		var list []netip.Addr
		for _, text := range addrs {
			if a := netip.MustParseAddr(text); a.Is4() == (network == "ip4") {
				list = append(list, a)
			}
		}
		return list, nil
	}
}

// wire records the connections. Each address accepts, fails, or hangs until the attempt is given up.
type wire struct {
	mu      sync.Mutex // guards what follows
	dialled []string
	fails   []string
	hangs   []string
}

func (w *wire) connect(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	w.dialled = append(w.dialled, to.String())
	w.mu.Unlock()
	if slices.Contains(w.fails, to.Addr().String()) {
		return nil, errors.New("no route")
	}
	if slices.Contains(w.hangs, to.Addr().String()) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	near, far := net.Pipe()
	_ = far.Close()
	return near, nil
}

func public(t *testing.T) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(sandbox.DefaultEgress())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTheAddressThatWasCheckedIsTheOneThatIsConnectedTo(t *testing.T) {
	t.Parallel()
	asked := 0
	rebinding := names(func(network, _ string) ([]netip.Addr, error) {
		if network == "ip6" {
			return nil, nil
		}
		asked++
		if asked == 1 {
			return []netip.Addr{netip.MustParseAddr("140.82.121.3")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("169.254.169.254")}, nil
	})
	w := &wire{}
	d := egress.Dialer{Resolver: rebinding, Connect: w.connect}
	_, addr, err := d.Dial(t.Context(), public(t), "github.com", 443)
	if err != nil || addr.String() != "140.82.121.3" || asked != 1 {
		t.Fatalf("connected to %s after %d questions, %v", addr, asked, err)
	}
	_, _, err = d.Dial(t.Context(), public(t), "github.com", 443)
	var refusal *policy.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != policy.AddressRefused {
		t.Errorf("the second answer gives %v", err)
	}
	if want := []string{"140.82.121.3:443"}; !slices.Equal(w.dialled, want) {
		t.Errorf("connected to %v", w.dialled)
	}
}

func TestOnlyThePermittedAddressesOfANameAreTried(t *testing.T) {
	t.Parallel()
	w := &wire{}
	d := egress.Dialer{
		Resolver: always("10.0.0.1", "::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "1.1.1.1"),
		Connect:  w.connect,
	}
	if _, addr, err := d.Dial(t.Context(), public(t), "mixed.example", 80); err != nil || addr.String() != "1.1.1.1" {
		t.Errorf("connected to %s, %v", addr, err)
	}
	if want := []string{"1.1.1.1:80"}; !slices.Equal(w.dialled, want) {
		t.Errorf("connected to %v", w.dialled)
	}
}

// net.Resolver returns IPv4 addresses in 16 bytes.
func TestIPv4InSixteenBytesFromTheResolverIsIPv4(t *testing.T) {
	t.Parallel()
	d := egress.Dialer{Connect: (&wire{}).connect, Resolver: names(func(network, _ string) ([]netip.Addr, error) {
		if network == "ip4" {
			return []netip.Addr{netip.MustParseAddr("::ffff:1.1.1.1")}, nil
		}
		return nil, errors.New("no such host")
	})}
	if _, addr, err := d.Dial(t.Context(), public(t), "one.example", 443); err != nil || addr.String() != "1.1.1.1" {
		t.Errorf("connected to %s, %v", addr, err)
	}
}

func TestNamesAreAskedForAsTheyAre(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	d := egress.Dialer{Connect: (&wire{}).connect, Resolver: names(func(network, host string) ([]netip.Addr, error) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, host)
		return nil, errors.New("no such host")
	})}
	_, _, err := d.Dial(t.Context(), public(t), "nowhere.example", 443)
	var f *egress.Failure
	if !errors.As(err, &f) || f.Reason != egress.ResolveFailed {
		t.Errorf("the error is %v", err)
	}
	if want := []string{"nowhere.example.", "nowhere.example."}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q: a search list would make another name of it", asked)
	}
}

func TestAnAddressThatHangsDelaysTheNextByItsHeadStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{hangs: []string{"2606:4700::1"}, fails: []string{"1.0.0.1"}}
		d := egress.Dialer{Resolver: always("2606:4700::1", "1.0.0.1", "1.1.1.1"), Connect: w.connect}
		began := time.Now()
		_, addr, err := d.Dial(t.Context(), public(t), "slow.example", 443)
		if err != nil || addr.String() != "1.1.1.1" {
			t.Errorf("connected to %s, %v", addr, err)
		}
		if took := time.Since(began); took != 250*time.Millisecond { // the failed address costs no time
			t.Errorf("it took %s", took)
		}
	})
}

func TestADialEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{hangs: []string{"1.1.1.1", "1.0.0.1"}}
		d := egress.Dialer{Resolver: always("1.1.1.1", "1.0.0.1"), Connect: w.connect}
		began := time.Now()
		_, _, err := d.Dial(t.Context(), public(t), "hangs.example", 443)
		var f *egress.Failure
		if !errors.As(err, &f) || f.Reason != egress.ConnectFailed || time.Since(began) > 16*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

func TestFewAddressesAreTried(t *testing.T) {
	t.Parallel()
	all := []string{"1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4", "1.1.1.5", "2606:4700::1", "2606:4700::2", "2606:4700::3"}
	w := &wire{fails: all}
	d := egress.Dialer{Resolver: always(all...), Connect: w.connect}
	if _, _, err := d.Dial(t.Context(), public(t), "many.example", 443); err == nil {
		t.Error("it was reached")
	}
	if want := []string{
		"[2606:4700::1]:443", "1.1.1.1:443", "[2606:4700::2]:443", "1.1.1.2:443",
	}; !slices.Equal(w.dialled, want) {
		t.Errorf("tried %v", w.dialled)
	}
}
