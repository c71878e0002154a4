package tune

import "testing"

func TestTheLibrariesLogOnlyWithTFLOG(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		environ []string
		want    string
	}{
		{nil, "off"},
		{[]string{"PATH=/bin", "TF_LOG="}, "off"},
		{[]string{"PATH=/bin", "TF_LOG=debug"}, ""},
		{[]string{"TF_LOG_PROVIDER=trace"}, ""},
		{[]string{"TF_LOG_SDK_FRAMEWORK=info"}, ""},
	} {
		set := map[string]string{}
		err := quiet(c.environ, func(k, v string) error { set[k] = v; return nil })
		for _, name := range []string{"TF_LOG_SDK", "TF_LOG_SDK_FRAMEWORK", "TF_LOG_SDK_PROTO"} {
			if err != nil || set[name] != c.want {
				t.Errorf("with %q: %s is %q, want %q (%v)", c.environ, name, set[name], c.want, err)
			}
		}
	}
}
