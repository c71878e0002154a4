// Package functions has the provider's functions. They need no configuration, do not connect, and always return the
// same for the same arguments.
package functions

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/function"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// All lists the functions.
func All() []func() function.Function {
	return []func() function.Function{
		func() function.Function { return leaseID{} },
		func() function.Function { return estimateMonthlyCost{} },
		func() function.Function { return parseImageReference{} },
		func() function.Function { return parseDuration{} },
	}
}

// argument returns an error about the argument at a position, counted from 0.
func argument(place int64, format string, args ...any) *function.FuncError {
	return function.NewArgumentFuncError(place, fmt.Sprintf(format, args...))
}

// refused turns a domain error into an error about the first argument whose field it names, or else about the function.
func refused(err error, arguments ...string) *function.FuncError {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		for _, f := range e.Fields {
			if place := slices.Index(arguments, f.Name); place >= 0 {
				return argument(int64(place), "%s %s", f.Name, f.Problem)
			}
		}
	}
	return function.NewFuncError(err.Error())
}
