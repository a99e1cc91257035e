package cgroups

// SetRmdir replaces the removal of a cgroup's directory: the files of an
// ordinary directory are not removed with it.
func (c *Cgroupfs) SetRmdir(f func(string) error) { c.rmdir = f }
