package flags_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/flags"
)

func TestAListHasAnElementAndNoEmptyOne(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		args []string
		want []string // nil is an error
	}{
		{nil, []string{"default"}},
		{[]string{"--of=a,b", "--of=c"}, []string{"a", "b", "c"}},
		{[]string{`--of="a,b",c`}, []string{"a,b", "c"}},
		{[]string{"--of="}, nil},
		{[]string{"--of= "}, nil},
		{[]string{"--of=a,,b"}, nil},
		{[]string{"--of=a,"}, nil},
		{[]string{"--of=a", "--of="}, nil},
	} {
		f, of := pflag.NewFlagSet("", pflag.ContinueOnError), []string{}
		flags.List(f, &of, "of", []string{"default"}, "")
		err := f.Parse(row.args)
		if row.want == nil && (err == nil || !strings.Contains(err.Error(), `"--of" flag: must not`)) ||
			row.want != nil && (err != nil || !slices.Equal(of, row.want)) {
			t.Errorf("%q gave %q, %v", row.args, of, err)
		}
	}
}

func TestAListIsReplacedByThatOfAFile(t *testing.T) {
	t.Parallel()
	f, of := pflag.NewFlagSet("", pflag.ContinueOnError), []string{}
	flags.List(f, &of, "of", []string{"default"}, "")
	list := f.Lookup("of").Value.(pflag.SliceValue)
	if err := list.Replace([]string{"a", ""}); err == nil {
		t.Error("a list with an empty element was accepted")
	}
	if err := list.Replace([]string{"a,b", "c"}); err != nil || f.Lookup("of").Value.String() != `["a,b",c]` {
		t.Errorf("got %s, %v", f.Lookup("of").Value, err)
	}
	if err := list.Replace(nil); err != nil || len(list.GetSlice()) != 0 {
		t.Errorf("got %q, %v", list.GetSlice(), err)
	}
}

func TestAFilterIsNotEmpty(t *testing.T) {
	t.Parallel()
	f, of := pflag.NewFlagSet("", pflag.ContinueOnError), ""
	flags.Filter(f, &of, "of", "")
	if err := f.Parse([]string{"--of", ""}); err == nil {
		t.Error("an empty filter was accepted")
	}
	if err := f.Parse([]string{"--of", "a"}); err != nil || of != "a" {
		t.Errorf("got %q, %v", of, err)
	}
}
