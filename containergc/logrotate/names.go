package logrotate

import (
	"slices"
	"strings"
	"time"
)

// The names of files beside a log, which are the kubelet's: 0.log.20060102-150405 is
// a rotated one, 0.log.20060102-150405.gz one that is compressed, and with .tmp
// behind that one that was being compressed.
const (
	timestamp  = "20060102-150405"
	compressed = ".gz"
	temporary  = ".tmp"
)

// aside is what lies beside a log.
type aside struct {
	// rotated are whole files, the newest first; one that is there both compressed
	// and not is in it once, as compressed.
	rotated []string
	// useless are files that a crash has left.
	useless []string
}

// sortAside looks at the names in the log's folder.
func sortAside(log string, names []string) (a aside) {
	there := make(map[string]bool, len(names))
	for _, name := range names {
		there[name] = true
	}
	for _, name := range names {
		rest, ok := strings.CutPrefix(name, log+".")
		if !ok {
			continue
		}
		if whole, ok := strings.CutSuffix(rest, temporary); ok {
			if isStamp(strings.TrimSuffix(whole, compressed)) {
				a.useless = append(a.useless, name)
			}
			continue
		}
		switch {
		case !isStamp(strings.TrimSuffix(rest, compressed)):
		case there[name+compressed]:
			a.useless = append(a.useless, name)
		default:
			a.rotated = append(a.rotated, name)
		}
	}
	slices.Sort(a.rotated)
	slices.Reverse(a.rotated)
	return a
}

// isStamp says whether text is a time as in the name of a rotated file. The last year
// that has a name is none: a log rotated now could not sort behind it.
func isStamp(text string) bool {
	_, err := time.Parse(timestamp, text)
	return err == nil && text < "9999" && len(text) == len(timestamp) // else parts of seconds pass, too
}

// rotatedName returns a name for a log that is rotated now. It sorts behind those
// that are there even if the clock has stepped back, as each autumn where names are
// in local time, or shows the same second: names are what tells old from new.
func rotatedName(log string, now time.Time, a aside) string {
	stamp := now.Format(timestamp)
	if len(a.rotated) > 0 {
		last := strings.TrimSuffix(strings.TrimPrefix(a.rotated[0], log+"."), compressed)
		if newest, err := time.Parse(timestamp, last); err == nil && stamp <= last {
			stamp = newest.Add(time.Second).Format(timestamp)
		}
	}
	return log + "." + stamp
}
