//go:build !linux

package stats

// readFile returns the content of a file that is not worth keeping open, in buf or its
// replacement.
func readFile(path string, buf *[]byte) ([]byte, error) {
	f := kernelFile{path: path}
	defer f.close()
	return f.read(buf)
}
