#!/bin/sh
# Shows an incident on the desktops of this machine, as `earlyoom -n` does: by the signal of systembus-notify on the D-Bus system bus. Each desktop
# session that runs systembus-notify (Debian's package of that name) shows the signal.
#
# Install this file as /etc/node-pressure-monitor/commands.d/desktop, and write into the configuration:
#   notifications: {command: [/etc/node-pressure-monitor/commands.d/desktop]}
set -eu
case $NPM_KIND in
oomKill) title='Out of memory' ;;
dryRun) title='Memory, disk or processes run out: nothing was ended' ;;
*) title='Memory, disk or processes ran out' ;;
esac
body=$NPM_SUMMARY
if [ "${NPM_SUPPRESSED:-0}" -gt 0 ]; then
	body="$body ($NPM_SUPPRESSED more before)"
fi
exec dbus-send --system / net.nuetzlich.SystemNotifications.Notify "string:$title" "string:$body"
