package prober

import "bytes"

// maxHead bounds the head of a response that is read here.
const maxHead = 4 << 10

// head is what matters of the head of a plain response.
type head struct {
	status int
	// size is how many bytes the head has, length how many the body.
	size, length int
	// last says that the server closes the connection.
	last bool
}

// parseHead reads the head of a response, if all of it is in b and it is of the plain
// form that nearly all have that are probed: HTTP/1.1, a final status that is no
// redirect, header lines by the letter of RFC 9112, a Content-Length. It must be
// right, not complete: net/http reads a plain response in the same way.
func parseHead(b []byte) (h head, plain bool) {
	end := bytes.Index(b[:min(len(b), maxHead)], []byte("\r\n\r\n"))
	if end < 0 {
		return h, false
	}
	h.size, h.length = end+4, -1
	lines := b[:end+2] // each ends with \r\n
	line, lines := cutLine(lines)
	if !h.parseStatus(line) {
		return h, false
	}
	for len(lines) > 0 {
		line, lines = cutLine(lines)
		if !h.parseLine(line) {
			return h, false
		}
	}
	if h.status == 204 {
		if h.length >= 0 {
			return h, false
		}
		h.length = 0
	}
	if h.length < 0 {
		return h, false
	}
	return h, true
}

// cutLine splits off the first line, without its end.
func cutLine(b []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(b, []byte("\r\n"))
	return line, rest
}

// parseStatus reads "HTTP/1.1 200 OK".
func (h *head) parseStatus(line []byte) bool {
	const start = "HTTP/1.1 "
	code, ok := bytes.CutPrefix(line, []byte(start))
	if !ok || len(code) < 3 || len(code) > 3 && code[3] != ' ' || !isText(line) {
		return false
	}
	for _, c := range code[:3] {
		if c < '0' || c > '9' {
			return false
		}
		h.status = h.status*10 + int(c-'0')
	}
	return h.status >= 200 && h.status < 300 || h.status >= 400
}

// parseLine reads one header line, and says whether it is understood.
func (h *head) parseLine(line []byte) bool {
	name, value, found := bytes.Cut(line, []byte(":"))
	if !found || !isToken(name) || !isText(value) {
		return false
	}
	value = bytes.Trim(value, " \t")
	switch {
	case is(name, "content-length"):
		return h.length < 0 && h.parseLength(value)
	case is(name, "connection"):
		h.last = h.last || is(value, "close")
		return is(value, "close") || is(value, "keep-alive")
	case is(name, "transfer-encoding"), is(name, "trailer"), is(name, "upgrade"):
		return false
	default:
		return true
	}
}

func (h *head) parseLength(value []byte) bool {
	if len(value) == 0 || len(value) > 9 {
		return false
	}
	h.length = 0
	for _, c := range value {
		if c < '0' || c > '9' {
			return false
		}
		h.length = h.length*10 + int(c-'0')
	}
	return true
}

// is compares b with a word in lower case.
func is(b []byte, word string) bool {
	if len(b) != len(word) {
		return false
	}
	for i := range b {
		c := b[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != word[i] {
			return false
		}
	}
	return true
}

// isText says whether b is printable ASCII, with blanks.
func isText(b []byte) bool {
	for _, c := range b {
		if (c < ' ' || c > '~') && c != '\t' {
			return false
		}
	}
	return true
}

// isToken says whether b is a name that needs no second look.
func isToken(b []byte) bool {
	for _, c := range b {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return len(b) > 0
}
