package podlogs

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
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
	c := &copier{ctx: ctx, src: src, options: o, timing: t, dir: dir, w: w, out: bufio.NewWriterSize(w, 16<<10), left: o.LimitBytes, join: newJoiner()}
	if err := c.copy(); !errors.Is(err, errLimit) {
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
	then int64  // the same of the second file
}

// copy copies the files, and what comes after them.
func (c *copier) copy() error {
	names, last, first, err := c.open()
	if err != nil {
		return err
	}
	defer func() {
		if last != nil {
			_ = last.close() // nothing was written
		}
	}()
	c.from, c.then = first.from, first.then
	at, before := first.at, key{}
	if first.file > 0 {
		before = names[first.file-1].key
	}
	names = names[first.file:]
	if first.opened != nil {
		err := c.whole(first.opened, at, names[1].attempt)
		at, before, names = 0, names[0].key, names[1:]
		if err != nil {
			return err
		}
	}
	if err := c.upToLast(names, before); err != nil {
		return err
	}
	split, err := c.read(last, at)
	if err != nil {
		return err
	}
	if c.options.Follow {
		current := last
		last = nil // the follower closes it
		return c.follow(current, split)
	}
	return c.end(split, true)
}

// open lists the files of the log, opens the last one, and finds where to begin. It
// does so anew when files are renamed meanwhile.
func (c *copier) open() (names []name, last *logFile, first start, err error) {
	wanted := func() ([]name, error) {
		names, err := c.dir.list(c.src.Attempt)
		return slices.DeleteFunc(names, func(n name) bool { return n.attempt > c.src.Attempt && !c.options.Follow }), err
	}
	for try := 1; ; try++ {
		names, last, err = c.dir.openLast(wanted)
		if err == nil && last == nil {
			err = ErrNoLog
		}
		if err == nil {
			if first, err = c.begin(names, last); err == nil {
				return names, last, first, nil
			}
			_ = last.close() // nothing was written
		}
		if try == tries || !isMoved(err) {
			return nil, nil, start{}, noLog(err)
		}
	}
}

// begin says where to begin.
func (c *copier) begin(names []name, last *logFile) (start, error) {
	if c.options.TailLines != nil {
		return c.findTail(names, last, *c.options.TailLines)
	}
	s := start{}
	for s.file < len(names)-1 && c.tooOld(names[s.file]) {
		s.file++
	}
	if s.file > 0 && names[s.file-1].attempt == names[s.file].attempt {
		s.file-- // a line that begins there may end in the next file, and is too old
	}
	return s, nil
}

// tooOld says whether nothing in a file is as young as asked for.
func (c *copier) tooOld(n name) bool {
	info, err := c.dir.root.Lstat(n.file)
	return err == nil && info.ModTime().Before(c.options.Since)
}

// upToLast copies the files but for the last one, of which each is open only while it
// is read. Before is the file before the first.
func (c *copier) upToLast(names []name, before key) error {
	for len(names) > 1 {
		l, err := c.dir.open(names[0])
		if errors.Is(err, fs.ErrNotExist) {
			became, err := c.dir.renamed(names[0], before)
			if names = append(became, names[1:]...); err == nil && len(became) == 0 {
				err = c.unfinished() // the rest of these lines was removed
			}
			if err != nil {
				return err
			}
			continue
		}
		if err == nil {
			err = c.whole(l, 0, names[1].attempt)
		}
		if err != nil {
			return err
		}
		before, names = names[0].key, names[1:]
	}
	return nil
}

// whole copies a file that is not written to any more, and closes it. Next is the
// attempt of the file after it.
func (c *copier) whole(l *logFile, at int64, next uint32) error {
	defer func() { _ = l.close() }() // nothing was written
	defer func() { c.from, c.then = c.then, 0 }()
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
		return nil, err
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
		if err := c.unfinished(); err != nil {
			return err
		}
	}
	return c.flush()
}

// unfinished copies the parts of lines that will never be whole.
func (c *copier) unfinished() error {
	for _, line := range c.join.rest() {
		if err := c.line(line.Line); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) piece(p piece) error {
	line, ok := c.join.add(p)
	if !ok || line.end < c.from {
		return nil
	}
	return c.line(line.Line)
}

// wants says whether a line is wanted.
func (c *copier) wants(l Line) bool {
	return (c.options.Stream == All || c.options.Stream == l.Stream) && !l.Time.Before(c.options.Since)
}

func (c *copier) line(l Line) error {
	if !c.wants(l) {
		return nil
	}
	c.text = lineText(c.text[:0], &l, c.options.Timestamps)
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
