package nearest_test

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/nearest"
)

func TestTo(t *testing.T) {
	t.Parallel()
	known := []string{"agent.death", "game.finished", "campaign.ended", "pr.merged", "root"}
	for word, want := range map[string]string{
		"agent.dead":     "agent.death",
		"agent.died":     "",
		"agent.deaths":   "agent.death",
		"game_finished":  "game.finished",
		"game.finish":    "game.finished",
		"game.finishing": "game.finished",
		"campaign.end":   "campaign.ended",
		"game.finished":  "",
		"game.won":       "",
		"x":              "",
		"foo":            "",
		"rot":            "root",
		"":               "",
	} {
		if got := nearest.To(word, known); got != want {
			t.Errorf("%q is taken for %q, want %q", word, got, want)
		}
	}
	if got := nearest.To("agent.dead", nil); got != "" {
		t.Errorf("without known words it is %q", got)
	}
}
