// Package hooks compares how a hook of a container is run: lifecycle's HookRunner
// with the kubelet's handler runner.
//
// A world is a container with a hook of any kind: a command, an HTTP request with a
// host or without, with headers, odd paths, ports by number or name and both schemes,
// a sleep, a kind that nobody runs, or an empty one. The answer is one of those that a
// client can give: a body of any length, a server that talks plain HTTP where HTTPS is
// asked for, a failure. What is compared is each request with its headers, how long
// the hook took, whether it failed, the message about that, and the events.
//
// What goes over a socket is the HTTP client's, and compared for probes. Deadlines of
// hooks are compared in package termination.
package hooks
