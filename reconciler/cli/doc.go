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
// The program's name is `sandbox`: the provider's own name, and the word that all documents use. The binary is
// terraform-provider-sandbox, because Terraform looks for that name. If Terraform starts it (with that name, no
// arguments, and the cookie of the plugin protocol in the environment), it is the provider. Otherwise it is this
// command line. On some systems, SELinux's tools have a program called sandbox (policycoreutils-sandbox). Our packages
// declare that conflict. To install both, give this program another name, such as sbl: help and errors print the name
// by which it was called.
//
// # The tree
//
// Nouns are singular and come before the verb: `sandbox lease list`. The daily commands are verbs without a noun:
// exec, run, cp, logs, cost, drift and events. A verb means the same for every noun: create, get, list, delete. Forms
// of earlier versions still work, see old.go.
//
// # Output
//
// Results go to standard output, everything else to standard error. On a terminal, tables fit its width: they cut long
// cells that another command shows in full. Elsewhere they cut nothing. -o wide adds columns and exact times; -o json
// and yaml are the API's own form; -o name and -q print only ids.
//
// # Where the reconciler is
//
// The flags --url and --token-file override --context. It overrides the variables SANDBOX_RECONCILER_URL and
// SANDBOX_RECONCILER_TOKEN, which override the current context of `sandbox login`. A context's token is sent only to
// that context's URL.
package cli
