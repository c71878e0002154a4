package client

import "github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"

// CodeOf returns the code of an error of a [Client]: "" for nil, [Internal] for an error without one.
func CodeOf(err error) Code { return sandbox.CodeOf(err) }

// ReasonOf returns the reason of an error of a [Client], "" if it has none.
func ReasonOf(err error) Reason { return sandbox.ReasonOf(err) }
