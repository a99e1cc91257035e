package podsource

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Problem is something that keeps a source from giving all its pods. It is an
// error.
type Problem struct {
	// File is the path of the file, or of the folder itself, or the URL of an [HTTP].
	File string
	// Document is the place of the document in the file, counted from 1 and
	// without empty ones, or the place in a list. It is 0 if the problem is about
	// the whole.
	Document int
	// Err says what is wrong. If it is about the content of a manifest, it names
	// every bad field by its path and holds a [field.Error] for each.
	Err error
}

// Error returns the file, the document and what is wrong with it.
func (p Problem) Error() string {
	if p.Document == 0 {
		return fmt.Sprintf("%s: %v", p.File, p.Err)
	}
	return fmt.Sprintf("%s: document %d: %v", p.File, p.Document, p.Err)
}

// Unwrap returns Err.
func (p Problem) Unwrap() error { return p.Err }

// compareProblems returns the problems that are only in now and those that are only
// in before. Two that read the same are one that goes on.
func compareProblems(before, now []Problem) (added, gone []Problem) {
	return without(now, before), without(before, now)
}

func without(list, other []Problem) (rest []Problem) {
	known := make(map[string]bool, len(other))
	for _, p := range other {
		known[p.Error()] = true
	}
	for _, p := range list {
		if !known[p.Error()] {
			rest = append(rest, p)
		}
	}
	return rest
}

// maxFieldErrors bounds what is said about one manifest: a megabyte of unknown
// fields is not worth several megabytes of log.
const maxFieldErrors = 50

// fieldErrors is all that is wrong with one manifest, on one line.
type fieldErrors field.ErrorList

func (e fieldErrors) Error() string {
	texts := make([]string, 0, len(e))
	for _, err := range e[:min(len(e), maxFieldErrors)] {
		texts = append(texts, err.Error())
	}
	if more := len(e) - maxFieldErrors; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the [field.Error] of each bad field.
func (e fieldErrors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, err := range e {
		errs[i] = err
	}
	return errs
}
