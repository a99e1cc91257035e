package logrotate

import (
	"slices"
	"strings"
	"time"
)

// File names in the folder of a log, as in the kubelet: 0.log.20060102-150405 is a rotated
// file, 0.log.20060102-150405.gz is compressed. The suffix .tmp marks a compressed file that
// is not complete yet.
const (
	timestamp  = "20060102-150405"
	compressed = ".gz"
	temporary  = ".tmp"
)

// siblings are the files of a log in its folder, without the log itself.
type siblings struct {
	// rotated are complete files, the newest first. If a file exists both compressed and
	// uncompressed, only the compressed file is included.
	rotated []string
	// leftovers are files that a crash has left and that must be removed.
	leftovers []string
}

// classify classifies the names in the log's folder.
func classify(log string, names []string) (a siblings) {
	exists := make(map[string]bool, len(names))
	for _, name := range names {
		exists[name] = true
	}
	for _, name := range names {
		rest, ok := strings.CutPrefix(name, log+".")
		if !ok {
			continue
		}
		if whole, ok := strings.CutSuffix(rest, temporary); ok {
			if isStamp(strings.TrimSuffix(whole, compressed)) {
				a.leftovers = append(a.leftovers, name)
			}
			continue
		}
		switch {
		case !isStamp(strings.TrimSuffix(rest, compressed)):
		case exists[name+compressed]:
			a.leftovers = append(a.leftovers, name)
		default:
			a.rotated = append(a.rotated, name)
		}
	}
	slices.Sort(a.rotated)
	slices.Reverse(a.rotated)
	return a
}

// isStamp reports whether text is the time in the name of a rotated file. The year 9999
// is not accepted: the name of a later rotation could not sort after it.
func isStamp(text string) bool {
	_, err := time.Parse(timestamp, text)
	return err == nil && text < "9999" && len(text) == len(timestamp) // time.Parse also accepts fractions of seconds
}

// rotatedName returns the name for a log that is rotated now. The name sorts after all
// existing names, so that the order of names is the order of rotations. This is also the
// case if the clock was set back, for example at the end of daylight saving time, or still
// shows the second of the last rotation.
func rotatedName(log string, now time.Time, a siblings) string {
	stamp := now.Format(timestamp)
	if len(a.rotated) > 0 {
		last := strings.TrimSuffix(strings.TrimPrefix(a.rotated[0], log+"."), compressed)
		if newest, err := time.Parse(timestamp, last); err == nil && stamp <= last {
			stamp = newest.Add(time.Second).Format(timestamp)
		}
	}
	return log + "." + stamp
}
