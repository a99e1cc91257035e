// Package commands is the agent's command line: which command, what it asks a
// running agent, and how the answer looks.
//
// # What it does
//
// [Program.Main] runs the command that its arguments begin with and returns the exit
// code. Without one, or with flags first, that is run, the agent itself, which the
// program supplies; all others are clients that ask an agent over HTTP by way of
// package api and print what it says: status, top, pods, logs, events, explain,
// evict --dry-run, gc --dry-run. The rest ask nobody: config, completion, version.
//
// Flags are the standard library's, before and behind other arguments, with one dash
// or two. A command framework would bring its own flags, and run's would change with
// them; what it offers for that, completion, is one function here: the shells' scripts
// ask the program itself what fits, so that they know the pods that there are.
//
// # What you supply
//
// A [Program]: where to print, the agent's run, and what configuration it would have.
//
// # What it guarantees
//
//  1. Exit codes: [ExitOK], [ExitFailed], [ExitUsage], [ExitUnreachable].
//  2. What was asked for goes to Stdout, what went wrong to Stderr, once, with what
//     to do about it.
//  3. Colours and the alternate screen are for terminals only; colours never with
//     NO_COLOR in the environment.
//  4. What pods and images call themselves can't steer the terminal: in tables,
//     texts and errors control characters are spaces. Logs, -o json and -o yaml are as they are.
//  5. -o json and -o yaml print the agent's answer, in the terms of package api; a
//     list of pods is the kubelet's.
//
// # Goroutines and locking
//
// A command runs in the goroutine of its caller and ends when ctx does.
//
// # Differences from kubectl
//
// A pod may be named as its manifest names it, without the node's name behind, or by
// the beginning of its name, as long as that fits one only; the namespace need not
// be said where the name is enough.
//
// # Testing your code with it
//
// Everything that a command touches is a field of Program: give it buffers, a fake
// clock and an environment of your own, and an agent from net/http/httptest.
package commands
