//go:build !linux

package stats

// readFile returns what is in a file that is not worth keeping open, in buf or what
// replaces it.
func readFile(path string, buf *[]byte) ([]byte, error) {
	f := kernelFile{path: path}
	defer f.close()
	return f.read(buf)
}
