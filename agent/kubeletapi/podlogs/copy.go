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

// Flusher is an optional interface of the writer of [Copy]. Flush sends buffered data.
type Flusher interface{ Flush() }

// timing has the delays of a follower.
type timing struct {
	// linger is how long the follower continues to read a file after a newer file exists or the
	// source has ended. The runtime may still write the last lines of the file in this time.
	linger time.Duration
	// poll is the time between two checks of the log if no event arrives.
	poll time.Duration
}

// Copy writes the selected part of a log to w. It returns nil when it has written everything,
// or the error that stopped it. If ctx is done, Copy returns the context's error. If w is a
// [Flusher], Copy calls Flush when no more data is available for now.
func Copy(ctx context.Context, w io.Writer, src Source, o Options) error {
	return copyLog(ctx, w, src, o, timing{linger: time.Second, poll: time.Second})
}

// errLimit is returned when LimitBytes bytes were written.
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

// copier is the state of one call of Copy.
type copier struct {
	ctx     context.Context
	src     Source
	options Options
	timing  timing
	dir     folder
	w       io.Writer
	out     *bufio.Writer
	left    int64 // remaining bytes of LimitBytes

	join     *joiner
	text     []byte // text of the last line
	from     int64  // lines of the current file that end before this offset are skipped
	nextFrom int64  // the offset for the next file
}

// copy copies the existing files and, with Follow, follows the log.
func (c *copier) copy() error {
	names, last, first, err := c.open()
	if err != nil {
		return err
	}
	defer func() {
		if last != nil {
			_ = last.close() // read-only
		}
	}()
	c.from, c.nextFrom = first.from, first.nextFrom
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

// open lists the files of the log, opens the last file, and finds the start position. If files
// are renamed during the call, open tries again.
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
			_ = last.close() // read-only
		}
		if try == tries || !isMoved(err) {
			return nil, nil, start{}, noLog(err)
		}
	}
}

// begin returns the position at which copying starts.
func (c *copier) begin(names []name, last *logFile) (start, error) {
	if c.options.TailLines != nil {
		return c.findTail(names, last, *c.options.TailLines)
	}
	s := start{}
	for s.file < len(names)-1 && c.tooOld(names[s.file]) {
		s.file++
	}
	if s.file > 0 && names[s.file-1].attempt == names[s.file].attempt {
		s.file-- // a line may start in this file and end in the next file; c.line skips lines that are too old
	}
	return s, nil
}

// tooOld reports whether a file was last modified before Options.Since.
func (c *copier) tooOld(n name) bool {
	info, err := c.dir.root.Lstat(n.file)
	return err == nil && info.ModTime().Before(c.options.Since)
}

// upToLast copies all files except the last file. Each file is open only while it is read. The
// given key is the key of the file that precedes the first of these files.
func (c *copier) upToLast(names []name, before key) error {
	for len(names) > 1 {
		l, err := c.dir.open(names[0])
		if errors.Is(err, fs.ErrNotExist) {
			became, err := c.dir.renamed(names[0], before)
			if names = append(became, names[1:]...); err == nil && len(became) == 0 {
				err = c.unfinished() // the rest of the partial lines was deleted with the file
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

// whole copies a file to which the runtime no longer writes, and closes the file. The next file has
// the given attempt.
func (c *copier) whole(l *logFile, at int64, next uint32) error {
	defer func() { _ = l.close() }() // read-only
	defer func() { c.from, c.nextFrom = c.nextFrom, 0 }()
	split, err := c.read(l, at)
	if err != nil {
		return err
	}
	return c.end(split, next != l.attempt)
}

// read copies the content of a file from an offset.
func (c *copier) read(l *logFile, at int64) (*splitter, error) {
	r, err := l.reader()
	if err != nil {
		return nil, err
	}
	if l.gzip {
		_, err = io.CopyN(io.Discard, r, at)
	} else {
		_, err = l.file.Seek(at, io.SeekStart)
	}
	if err != nil {
		return nil, err
	}
	split := newSplitter(r, at)
	return split, c.drain(split)
}

// drain copies the lines that are available now.
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

// end copies an incomplete line at the end of a file. The boolean argument reports whether the file
// is the last file of its attempt. If so, end also copies partial lines, because they will never be
// completed.
func (c *copier) end(split *splitter, attempt bool) error {
	if p, ok := split.remaining(); ok {
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

// unfinished copies partial lines that will never be completed.
func (c *copier) unfinished() error {
	for _, line := range c.join.remaining() {
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

// wants reports whether a line is selected.
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

// flush sends the copied data.
func (c *copier) flush() error {
	if err := c.out.Flush(); err != nil {
		return err
	}
	if f, ok := c.w.(Flusher); ok {
		f.Flush()
	}
	return nil
}
