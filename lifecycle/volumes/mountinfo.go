package volumes

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// A MountPoint is one mounted file system.
type MountPoint struct {
	// Target is the mount point, and FSType is the type of the file system.
	Target, FSType string
}

// maxMountLine is the maximum length of a line, in bytes. The options of one
// mount can fill a page, and the kernel may write a byte of a path as four
// bytes.
const maxMountLine = 1 << 20

// ParseMountInfo parses text in the format of /proc/self/mountinfo, described
// in the kernel's Documentation/filesystems/proc.rst. Mount points whose
// directory was deleted are omitted, because no path leads there any more. The
// error names the number of the invalid line.
func ParseMountInfo(file io.Reader) (mounts []MountPoint, err error) {
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxMountLine)
	n := 0
	for lines.Scan() {
		n++
		line := lines.Text()
		if line == "" {
			continue
		}
		m, err := parseMount(line)
		if err != nil {
			return nil, fmt.Errorf("mountinfo, line %d: %w", n, err)
		}
		if !strings.HasSuffix(m.Target, "//deleted") {
			mounts = append(mounts, m)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("mountinfo, line %d: %w", n+1, err)
	}
	return mounts, nil
}

// parseMount parses a line of the form: id parent device root target options
// optional... - type source options.
func parseMount(line string) (MountPoint, error) {
	before, after, found := strings.Cut(line, " - ")
	fields, rest := strings.Split(before, " "), strings.Split(after, " ")
	if !found || len(fields) < 6 || len(rest) < 2 {
		return MountPoint{}, errors.New("too few fields")
	}
	target := unescape(fields[4])
	if !strings.HasPrefix(target, "/") {
		return MountPoint{}, errors.New("the mount point is not absolute")
	}
	return MountPoint{Target: target, FSType: unescape(rest[0])}, nil
}

// unescape replaces \ooo by the byte with that octal number. Other backslashes
// are not changed.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	octal := func(c byte) bool { return '0' <= c && c <= '7' }
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && '0' <= s[i+1] && s[i+1] <= '3' && octal(s[i+2]) && octal(s[i+3]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// below returns the mount points at or below a directory, in the order in which
// they must be unmounted: the newest mount first.
func below(mounts []MountPoint, folder string) (targets []string) {
	for _, m := range slices.Backward(mounts) {
		target := path.Clean(m.Target)
		if isBelow(target, folder) {
			targets = append(targets, target)
		}
	}
	return targets
}

// isBelow reports whether target is folder or is below it.
func isBelow(target, folder string) bool {
	return target == folder || strings.HasPrefix(target, folder+"/")
}
