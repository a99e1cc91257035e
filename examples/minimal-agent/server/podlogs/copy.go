package podlogs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Flusher is what a writer may be that sends what was written only when asked to.
type Flusher interface{ Flush() }

// timing is how patient a follower is.
type timing struct {
	// settle is how long a file is looked at after there is a newer one: the runtime
	// may still write to it what it had in hand.
	settle time.Duration
	// poll is how often is looked at the log without an event.
	poll time.Duration
}

// Copy writes what is wanted of a log to w, and returns when that is done: nil, or why
// it could not go on. A writer that is a [Flusher] is flushed when there is no more for
// now. When ctx is done that is its error.
func Copy(ctx context.Context, w io.Writer, src Source, o Options) error {
	return copyLog(ctx, w, src, o, timing{settle: time.Second, poll: time.Second})
}

// errLimit says that all that is wanted was written.
var errLimit = errors.New("the limit is reached")

func copyLog(ctx context.Context, w io.Writer, src Source, o Options, t timing) error {
	dir, err := openFolder(src)
	if err != nil {
		return err
	}
	defer dir.close()
	files, err := dir.openAll(src.Attempt, o.Follow)
	if err != nil {
		return noLog(err)
	}
	if len(files) == 0 {
		return ErrNoLog
	}
	c := &copier{ctx: ctx, src: src, options: o, timing: t, dir: dir, w: w, out: bufio.NewWriterSize(w, 16<<10), left: o.LimitBytes, join: newJoiner()}
	if err := c.copy(files); !errors.Is(err, errLimit) {
		return errors.Join(err, ctx.Err())
	}
	return c.flush()
}

// copier is one Copy.
type copier struct {
	ctx     context.Context
	src     Source
	options Options
	timing  timing
	dir     folder
	w       io.Writer
	out     *bufio.Writer
	left    int64 // of LimitBytes

	join *joiner
	text []byte // of the last line
	from int64  // lines of the first file that end before are not wanted
}

// copy copies the files, and what comes after them. It closes them.
func (c *copier) copy(files []*logFile) error {
	defer func() { closeAll(files) }()
	first, err := c.begin(files)
	if err != nil {
		return err
	}
	closeAll(files[:first.file])
	files = files[first.file:]
	at := first.at
	c.from = first.from
	for len(files) > 1 {
		if err := c.whole(files[0], at, files[1].attempt); err != nil {
			return err
		}
		_ = files[0].close() // it was only read
		files, at, c.from = files[1:], 0, 0
	}
	last, split, err := files[0], (*splitter)(nil), error(nil)
	if split, err = c.read(last, at); err != nil {
		return err
	}
	if c.options.Follow {
		files = nil // the follower has it now
		return c.follow(last, split)
	}
	return c.end(split, true)
}

// begin says where to begin.
func (c *copier) begin(files []*logFile) (start, error) {
	if c.options.TailLines != nil {
		return findTail(files, *c.options.TailLines, c.wants)
	}
	s := start{}
	for !c.options.Since.IsZero() && s.file < len(files)-1 && files[s.file].info.ModTime().Before(c.options.Since) {
		s.file++ // nothing in it is as young
	}
	return s, nil
}

// whole copies a file that is not written to any more. Next is the attempt of the
// file after it.
func (c *copier) whole(l *logFile, at int64, next uint32) error {
	split, err := c.read(l, at)
	if err != nil {
		return err
	}
	return c.end(split, next != l.attempt)
}

// read copies what is in a file from an offset on.
func (c *copier) read(l *logFile, at int64) (*splitter, error) {
	r, err := l.reader()
	if err != nil {
		return nil, err
	}
	if _, err := io.CopyN(io.Discard, r, at); l.gzip && err != nil {
		return nil, fmt.Errorf("%s: %w", l.name.file, err)
	} else if !l.gzip {
		if _, err := l.file.Seek(at, io.SeekStart); err != nil {
			return nil, err
		}
	}
	split := newSplitter(r, at)
	return split, c.drain(split)
}

// drain copies the lines that there are now.
func (c *copier) drain(split *splitter) error {
	for n := 1; ; n++ {
		p, err := split.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = c.piece(p)
		}
		if err == nil && n%1000 == 0 {
			err = c.ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// end copies what a file has at its end that is no whole line. If it is the last one of
// its attempt, parts of lines will never be whole either.
func (c *copier) end(split *splitter, attempt bool) error {
	if p, ok := split.rest(); ok {
		if err := c.piece(p); err != nil {
			return err
		}
	}
	if attempt {
		for _, line := range c.join.rest() {
			if err := c.line(line); err != nil {
				return err
			}
		}
	}
	return c.flush()
}

func (c *copier) piece(p piece) error {
	line, ok := c.join.add(p)
	if !ok {
		return nil
	}
	return c.line(line)
}

// wants says whether a line is wanted.
func (c *copier) wants(l Line) bool {
	return (c.options.Stream == All || c.options.Stream == l.Stream) && !l.Time.Before(c.options.Since)
}

func (c *copier) line(l joined) error {
	if l.end < c.from || !c.wants(l.Line) {
		return nil
	}
	c.text = lineText(c.text[:0], &l.Line, c.options.Timestamps)
	if c.options.LimitBytes > 0 {
		c.text = c.text[:min(int64(len(c.text)), c.left)]
		c.left -= int64(len(c.text))
	}
	if _, err := c.out.Write(c.text); err != nil {
		return err
	}
	if c.options.LimitBytes > 0 && c.left == 0 {
		return errLimit
	}
	return nil
}

// flush sends what was copied.
func (c *copier) flush() error {
	if err := c.out.Flush(); err != nil {
		return err
	}
	if f, ok := c.w.(Flusher); ok {
		f.Flush()
	}
	return nil
}
