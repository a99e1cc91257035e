// Package housetest checks the rules of this module that the compiler does not check. The
// checks are tests, so `go test ./...` reports violations without an additional tool.
//
// # What it checks
//
// Layering: which packages import which, the dependencies that the module must not have,
// those that only tests may have, and those that users of some packages must not link. The
// table of imports is in edges_test.go.
//
// Weight: how many packages and modules users link with each package, in the checked-in
// table testdata/weight.txt. Each change is a line in the diff that needs a reason.
//
// Size: lines of files and functions, methods of interfaces, parameters of constructors,
// lines of tests per line of code.
//
// Documentation: every package that users import has a doc.go with the same headings, a
// comment on every exported symbol, and a runnable example with output.
//
// State and time: no package variables, no init, no panics, no system clock.
//
// Tests: a leak check in every package, no skipping, no waiting in real time.
//
// Pages: links lead to existing files and headings, and Go code in pages consists of lines
// of a compiled file.
//
// Words: no committed file contains marks of unfinished work, or paths and hosts of one
// particular machine.
//
// Riddles: phrases that readers do not understand at first reading, listed in
// testdata/riddles.txt. Their number in each package and page, in
// testdata/riddle-counts.txt, may only decrease.
//
// # How it works
//
// Each check is a pure function from a parsed module to findings. A finding has a file, a
// line and the action to take. The scripts in testdata/checks run the checks on small
// sources, and must make every check fail at least once, because a check that cannot fail
// is useless.
//
// `go test -v -run Report` prints the sizes, comment shares and test ratios to which the
// limits apply.
package housetest
