// Package housetest holds the rules of this module that a compiler does not
// check, as tests: plain `go test ./...` tells of a breach, and nobody needs a
// tool installed to be told.
//
// # What it checks
//
// Layering: who imports whom, the dependencies that never enter the module, those
// that only tests may have, and what users of some packages do not link. The
// table of edges is in edges_test.go.
//
// Weight: how many packages and modules a user links with each of ours, as a
// checked-in table, testdata/weight.txt. A change of it is a line in the diff
// that somebody has to defend.
//
// Shape: lines of files and functions, methods of interfaces, parameters of
// constructors, test code per code.
//
// Documentation: a doc.go with the headings that all have, a comment on every exported symbol, and a runnable
// example with output in every package that users import.
//
// State and time: no package variables, no init, no panics, no system clock.
//
// Tests: a leak check in every package, no skipping, no waiting in real time.
//
// Pages: links lead to files and headings that are there, and Go code in them is
// lines of a file that is compiled.
//
// Words: no unfinished work, and nothing of one particular machine in a
// committed file.
//
// # How it works
//
// Each check is a pure function from a parsed module to findings, each of which
// names a file and a line and says what to do. The scripts under testdata/checks
// run it on small sources, and every check is seen to fail there: one that cannot
// fail protects nothing.
//
// `go test -v -run Report` prints the sizes, comment shares and ratios that the
// limits are about.
package housetest
