// Package housetest checks the rules of this module that the compiler does not check. The
// checks are tests, so `go test ./...` reports violations without an additional tool.
//
// # What it checks
//
// Layering: which packages each package may import, which dependencies the module must not
// have, which dependencies only tests may have, and which dependencies the users of some
// packages must not link. The table of imports is in edges_test.go.
//
// Weight: how many packages and modules users link with each package. The table
// testdata/weight.txt has the numbers. Each changed line of the table needs a reason in
// the commit message.
//
// Size: limits for the lines of files and functions, the methods of interfaces, the
// parameters of constructors, and the ratio of test lines to code lines.
//
// Documentation: every package that users import has a doc.go with the same headings, a
// comment on every exported symbol, and an example with output.
//
// State and time: no package variables, no init, no panics, no system clock.
//
// Tests: a leak check in every package, no skipping, no waiting in real time.
//
// Pages: links lead to existing files and headings, and Go code in pages consists of lines
// of a compiled file.
//
// Words: no committed file contains marks of unfinished work, or paths and host names that
// only exist on one machine.
//
// Riddles: testdata/riddles.txt lists phrases that readers do not understand at first
// reading. testdata/riddle-counts.txt has the number of these phrases in each package and
// page. The numbers may only decrease.
//
// # How it works
//
// Each check is a pure function from a parsed module to findings. A finding has a file, a
// line and the action to take. The scripts in testdata/checks run the checks on small
// sources. Every check must fail in at least one script, because a check that can't fail
// is useless.
//
// `go test -v -run Report` prints sizes, shares of comments and test ratios.
package housetest
