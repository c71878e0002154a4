package provider

import "testing"

func TestTheFrameworkLogsOnlyWhereSomebodyReads(t *testing.T) {
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
		if err := quiet(c.environ, func(k, v string) error { set[k] = v; return nil }); err != nil ||
			set["TF_LOG_SDK"] != c.want {
			t.Errorf("with %q: TF_LOG_SDK is %q, want %q (%v)", c.environ, set["TF_LOG_SDK"], c.want, err)
		}
	}
}
