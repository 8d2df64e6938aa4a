"""Campaigns: many boots of this machine, in which kernels take turns, unattended.

campaign.json is the one file of state. A systemd unit calls the engine after each boot.
"""
