package stats

import "time"

// Rearm is how often Watch looks for something new to watch.
const Rearm = rearm

// SetRearm has Watch do so more often. It comes before Watch.
func (p *Provider) SetRearm(every time.Duration) { p.rearm = every }
