// Package cli is the command line: the root of its commands, its help, and the old forms of commands. It takes the
// commands that need no running reconciler, such as serve, from its caller.
//
// # The packages
//
//	leasing, inside,   commands that ask a reconciler, by subject
//	operate, login
//	daemon             commands that are a reconciler, or work on its ledger
//	console            what commands are made of: client, arguments, shared flags, printing
//	contexts           the saved reconcilers of a user
//	table, format      columns of text; times, costs and ids as text
//	terminal           what an output can show; progress
//	exit               exit codes
//
// # The name
//
// The program answers as `sandbox`: the provider's own name, and the word that all documents use. The binary is
// terraform-provider-sandbox, because Terraform looks for that name. Started by Terraform (that name, no arguments,
// the cookie of the plugin protocol in the environment) it is the provider; else it is this command line. SELinux's
// tools have a program called sandbox on some systems (policycoreutils-sandbox). Our packages declare that conflict.
// Beside it, install this program under another name, such as sbl: help and errors print the name it was called by.
//
// # The tree
//
// Nouns are singular and come before the verb: `sandbox lease list`. The daily commands are verbs without a noun:
// exec, run, cp, logs, cost, drift and events. A verb means the same for every noun: create, get, list, delete. Forms
// of earlier versions still work, see old.go.
//
// # Output
//
// Results go to standard output, all else to standard error. On a terminal, tables fit its width: cells that are
// long and can be asked for elsewhere are cut. Elsewhere nothing is cut. -o wide adds columns and gives exact times;
// -o json and yaml are the API's own form; -o name and -q print ids only.
//
// # Where the reconciler is
//
// The flags --url and --token-file go before --context, which goes before the variables SANDBOX_RECONCILER_URL and
// SANDBOX_RECONCILER_TOKEN, which go before the current context of `sandbox login`. A context's token is sent only to
// that context's URL.
package cli
