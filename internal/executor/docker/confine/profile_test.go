package confine

import (
	"slices"
	"strings"
	"testing"
)

func TestNoCallIsBothAllowedAndRefused(t *testing.T) {
	t.Parallel()
	named := slices.Concat(allowedCalls, tracingCalls, forbiddenCalls, absentCalls)
	slices.Sort(named)
	for i, name := range named[1:] {
		if named[i] == name {
			t.Errorf("%s is named twice", name)
		}
	}
	for _, name := range []string{"clone", "socket", "socketpair", "personality"} {
		if slices.Contains(named, name) {
			t.Errorf("%s is named beside the rules for its arguments", name)
		}
	}
}

func TestAnOldEngineGetsAProfileThatItUnderstands(t *testing.T) {
	t.Parallel()
	for version, chosen := range map[string]bool{
		"20.10.0": false, "20.10.9": false, "19.03.15": false,
		"20.10.10": true, "20.10.24+dfsg1": true, "23.0.1": true, "29.0.0-rc.1": true, "dev": true,
	} {
		if choosesErrnos(version) != chosen {
			t.Errorf("engine %s lets a profile choose errors: %t, want %t", version, !chosen, chosen)
		}
	}
	text, err := ownProfile(false)
	if err != nil {
		t.Fatal(err)
	}
	// Old runtimes reject a rule that refuses with the default's error.
	if strings.Contains(text, "errnoRet") || strings.Count(text, seccompRefuse) != 1 {
		t.Errorf("the profile is %s", text)
	}
}
