package leasing_test

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox/servicetest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox/servicetest/inprocess"
)

func TestServiceInProcess(t *testing.T) {
	t.Parallel()
	servicetest.Run(t, servicetest.Config{New: inprocess.New})
}
