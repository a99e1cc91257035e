// Package commands is the command line of minimal-agent: it selects the command, queries a
// running agent, and prints the answer.
//
// # What it does
//
// [Program.Main] runs the command in its first argument and returns the exit code. Without
// arguments, or if the first one is a flag, the command is run: the agent itself, which the
// program supplies. The commands status, top, pods, logs, events, explain, evict --dry-run and
// gc --dry-run query an agent over HTTP with package api and print its answer. The commands
// config, completion and version need no running agent.
//
// Flags are parsed by the standard library. They may stand before and after other arguments,
// with one dash or two. A command framework would replace the flags of run by its own. Its main
// benefit, shell completion, is a small part of this package: the shell scripts call the program
// itself for candidates, and so can complete the names of the current pods.
//
// # What you supply
//
// A [Program]: the output streams, a function that runs the agent, and a function that
// returns its configuration.
//
// # What it guarantees
//
//  1. Exit codes: [ExitOK], [ExitFailed], [ExitUsage], [ExitUnreachable].
//  2. Results go to Stdout. An error goes to Stderr, once, with what to do about it.
//  3. Colours and the alternate screen are used on terminals only, and colours never if NO_COLOR
//     is set in the environment.
//  4. Names and messages of pods and images cannot send control sequences to the terminal: in
//     tables, texts and errors, control characters are replaced by spaces. Logs, -o json and
//     -o yaml are printed unchanged.
//  5. -o json and -o yaml print the agent's answer with the types of package api. A list of pods
//     is a PodList.
//
// # Goroutines and locking
//
// A command runs in the goroutine of its caller and returns when ctx is done.
//
// # Differences from kubectl
//
// A pod may be named as in its manifest, without the suffix of the node's name, or by a prefix of
// its name that matches only one pod. The namespace may be left out if the name is unique.
//
// # Testing your code with it
//
// Everything that a command uses is a field of Program: set buffers, a fake clock and an
// environment of your own, and an agent from net/http/httptest.
package commands
