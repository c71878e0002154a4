// Package functions has the functions of the provider. They need no configuration, connect to nothing, and
// return the same for the same arguments.
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

// argument makes an error that names an argument by its place, from 0.
func argument(place int64, format string, args ...any) *function.FuncError {
	return function.NewArgumentFuncError(place, fmt.Sprintf(format, args...))
}

// refused turns an error of the domain into one of the arguments whose fields it names; others are the
// function's.
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
