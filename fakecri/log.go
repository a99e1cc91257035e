package fakecri

import (
	"errors"
	"os"
	"strings"
	"time"
)

// writeLog writes what the program of a starting container says, in the CRI log
// format: time, stream, F for a full line, text.
func (n *Node) writeLog(c *container) error {
	var b strings.Builder
	for _, line := range c.program.Log {
		b.WriteString(n.wall().UTC().Format(time.RFC3339Nano) + " stdout F " + line + "\n")
	}
	return n.appendLog(c, []byte(b.String()))
}

// appendLog appends text to a container's log, which is there after it. It does
// nothing unless the container has a log and Config.WriteLogs is set.
func (n *Node) appendLog(c *container, text []byte) error {
	if !n.cfg.WriteLogs || c.logPath == "" {
		return nil
	}
	f, err := os.OpenFile(c.logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}
