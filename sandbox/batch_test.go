package sandbox_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// settingsWith returns settings of a lease that are all set. They differ for each n.
func settingsWith(n int) sandbox.LeaseSettings {
	hours := sandbox.Duration(time.Duration(n) * time.Hour)
	word := string(rune('a' + n))
	return sandbox.LeaseSettings{
		TTL: &hours, SleepAfter: &hours, MaxLifetime: &hours, ExpiryConditions: []string{word},
		Labels: map[string]string{"team": word},
	}
}

func TestEachSettingOfAnItemOverridesThatOfItsBatch(t *testing.T) {
	t.Parallel()
	shared, own := settingsWith(1), settingsWith(2)
	for i := range reflect.TypeFor[sandbox.LeaseSettings]().NumField() {
		name := reflect.TypeFor[sandbox.LeaseSettings]().Field(i).Name
		var item, want sandbox.LeaseSettings
		want = shared
		value := reflect.ValueOf(own).Field(i)
		if value.IsZero() || reflect.DeepEqual(value.Interface(), reflect.ValueOf(shared).Field(i).Interface()) {
			t.Errorf("this test has no two values of %s", name)
		}
		reflect.ValueOf(&item).Elem().Field(i).Set(value)
		reflect.ValueOf(&want).Elem().Field(i).Set(value)
		batch := sandbox.AcquireBatch{Settings: shared, Items: []sandbox.BatchItem{{Settings: item}, {}}}
		if got := batch.Each()[0].Settings; !reflect.DeepEqual(got, want) {
			t.Errorf("with %s of its own an item has the settings %+v, want %+v", name, got, want)
		}
		if got := batch.Each()[1].Settings; !reflect.DeepEqual(got, shared) {
			t.Errorf("an item without settings has %+v, want those of its batch: %+v", got, shared)
		}
	}
}
