package stats

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// maxFile is the size beyond which a kernel file is taken for something else.
const maxFile = 4 << 20

// A kernelFile is one that is read again and again. It is kept open, for opening
// costs more than reading. The zero value but for its path is one not yet open.
type kernelFile struct {
	path string
	file *os.File
}

// read returns what is in the file now, in buf or what replaces it. A cgroup that
// was removed and made again is another file: it is opened once more.
func (f *kernelFile) read(buf *[]byte) ([]byte, error) {
	if f.file != nil {
		if b, err := readAll(f.file, buf); err == nil {
			return b, nil
		}
		f.close()
	}
	file, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	f.file = file
	b, err := readAll(file, buf)
	if err != nil {
		f.close()
	}
	return b, err
}

// moveTo makes f the file at path.
func (f *kernelFile) moveTo(path string) {
	if f.path != path {
		f.close()
		f.path = path
	}
}

// close lets go of the file. It can be read again.
func (f *kernelFile) close() {
	if f.file != nil {
		_ = f.file.Close() // read-only: nothing can be lost
		f.file = nil
	}
}

// readAll reads from the beginning, whatever was read before.
func readAll(file *os.File, buf *[]byte) ([]byte, error) {
	if len(*buf) == 0 {
		*buf = make([]byte, 8<<10)
	}
	for n := 0; ; {
		m, err := file.ReadAt((*buf)[n:], int64(n))
		n += m
		switch {
		case errors.Is(err, io.EOF):
			return (*buf)[:n], nil
		case err != nil:
			return nil, err
		case n >= maxFile:
			return nil, fmt.Errorf("%s has more than %d bytes", file.Name(), maxFile)
		}
		*buf = append(*buf, make([]byte, len(*buf))...)
	}
}
