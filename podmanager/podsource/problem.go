package podsource

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Problem is an error that prevents a source from delivering all its pods.
type Problem struct {
	// File is the path of the file, or of the folder itself, or the URL of an [HTTP]. It is
	// [SourceStatic] for a pod of a [Static].
	File string
	// Document is the position of the document in the file, or of the item in a list,
	// counted from 1. Empty documents are not counted. It is 0 if the problem is about the
	// whole file.
	Document int
	// Err is the cause. If fields of a manifest are bad, Err wraps a [field.Error] for
	// each bad field. The text of Err has the paths of at most 50 fields.
	Err error
}

// Error returns the file, the document and the cause.
func (p Problem) Error() string {
	if p.Document == 0 {
		return fmt.Sprintf("%s: %v", p.File, p.Err)
	}
	return fmt.Sprintf("%s: document %d: %v", p.File, p.Document, p.Err)
}

// Unwrap returns Err.
func (p Problem) Unwrap() error { return p.Err }

// attrs returns the file and the document of the problem as log attributes.
func (p Problem) attrs() []any {
	if p.Document == 0 {
		return []any{"file", p.File}
	}
	return []any{"file", p.File, "document", p.Document}
}

// compareProblems returns the problems that are only in the new list, and the problems
// that are only in the old list. Problems with the same text are the same problem.
func compareProblems(before, now []Problem) (added, resolved []Problem) {
	return without(now, before), without(before, now)
}

func without(list, other []Problem) (missing []Problem) {
	known := make(map[string]bool, len(other))
	for _, p := range other {
		known[p.Error()] = true
	}
	for _, p := range list {
		if !known[p.Error()] {
			missing = append(missing, p)
		}
	}
	return missing
}

// maxFieldErrors limits the errors that are listed for one manifest. Otherwise a manifest
// with a megabyte of unknown fields would cause several megabytes of log.
const maxFieldErrors = 50

// fieldErrors joins all errors of one manifest on one line.
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
