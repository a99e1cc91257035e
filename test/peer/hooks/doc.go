// Package hooks compares the execution of a container hook: by lifecycle's HookRunner and by
// the kubelet's handler runner.
//
// A world is a container with a hook of any kind: a command; an HTTP request with or without
// a host, with headers, unusual paths, ports by number or name and both schemes; a sleep; an
// unsupported kind; or an empty hook. The HTTP client can return a body of any length, the
// error of a server that uses plain HTTP although the hook requests HTTPS, or another failure.
// The facts are each request with its headers, the duration of the hook, whether the hook
// failed, the message about the failure, and the events.
//
// Both sides use the HTTP client for the wire format, which the comparison of probes covers.
// Package termination compares the deadlines of hooks.
package hooks
