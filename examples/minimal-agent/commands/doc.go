// Package commands is the command line of minimal-agent: it selects the command, queries a
// running agent, and prints the response.
//
// # What it does
//
// [Program.Main] runs the command in its first argument and returns the exit code. Without
// arguments, or if the first argument is a flag other than -h and --help, Main uses the command
// named run. This command runs the agent: it calls [Program].Run. The commands status, top, pods,
// logs, events, explain, images, evict --dry-run and gc --dry-run query an agent over HTTP with
// package api and print the response. The commands restart and pull change pods and images. The
// commands exec, attach, port-forward and cp use package stream. The commands validate, config,
// completion and version need no running agent.
//
// Package flag of the standard library parses the flags. Flags may have one dash or two, and may
// be before or after other arguments. A command framework would replace the flags of the command
// run with its own flags. The main benefit of a framework, shell completion, is a small part of
// this package: the shell scripts call the program itself for candidates, so they can complete the
// names of the current pods.
//
// # What you supply
//
// You supply a [Program]: the output streams, a function that runs the agent, and a function that
// returns the configuration of the agent.
//
// # What it guarantees
//
//  1. Exit codes: [ExitOK], [ExitFailed], [ExitUsage], [ExitUnreachable]. The command exec returns
//     the exit code of the command in the container.
//  2. Results go to Stdout. An error goes to Stderr, once, with a hint how to fix it.
//  3. Only output to a terminal has colours or uses the alternate screen. If NO_COLOR is set in
//     the environment, no output has colours.
//  4. Names and messages of pods and images cannot send control sequences to the terminal: in
//     tables, texts and errors, spaces replace control characters. Logs, the output of containers,
//     -o json and -o yaml are printed unchanged.
//  5. -o json and -o yaml print the agent's response with the types of package api. A list of
//     pods is a PodList.
//  6. Whatever the container sends, cp creates no links, and writes no file outside of its
//     destination. A link that exists in the destination can only lead to files in the folder that
//     contains the destination.
//
// # Goroutines and locking
//
// A command returns when ctx is done, and waits for its goroutines, with one exception: a
// goroutine of exec and attach ends when its Read of Stdin returns.
//
// # Differences from kubectl
//
// The user may give a pod's name as in its manifest, without the node name as suffix, or a prefix
// of the name that matches only one pod. The user may omit the namespace if the name is unique.
// Commands do not read the annotation kubectl.kubernetes.io/default-container. The command cp does
// not copy links.
//
// # Testing your code with it
//
// A command uses only the fields of Program and an agent: set buffers, a fake clock and a
// function for environment variables, and serve the agent with net/http/httptest.
package commands
