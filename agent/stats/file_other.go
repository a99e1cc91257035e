//go:build !linux

package stats

// readFile returns the content of a file that is read too rarely to stay open. The
// content is valid until the next use of buf. If buf is too small, readFile replaces
// it.
func readFile(path string, buf *[]byte) ([]byte, error) {
	f := kernelFile{path: path}
	defer f.close()
	return f.read(buf)
}
